"""Pages in docs/evidence: what each paper claims, and what the result files say about it."""
