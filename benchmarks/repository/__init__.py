"""How well a repository is searched without running its models."""
