"""Raw records: files, tables, logs and text, read and numbered."""
