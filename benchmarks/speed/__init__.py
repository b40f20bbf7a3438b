"""Speed against peers: the same work, in the same process, with the same number of threads."""
