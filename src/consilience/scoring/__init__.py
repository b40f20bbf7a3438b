"""Run teachers on rows: in batches, in several processes, with a store of outputs."""
