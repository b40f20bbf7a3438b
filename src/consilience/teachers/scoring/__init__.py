"""Ask teachers about rows: in batches, in processes, with a store that remembers."""
