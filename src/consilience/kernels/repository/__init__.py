"""Stand-ins for models that are not run, and distances between their kernel means."""
