"""What a run becomes for other tools, beside files of vectors: a Faiss index, ONNX models."""
