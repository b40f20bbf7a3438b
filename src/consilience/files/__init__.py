"""Files: cards, ONNX export, atomic writes, readers of tables and arrays."""
