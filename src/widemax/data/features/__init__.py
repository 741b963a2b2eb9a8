"""Features of items and users: columns in, codes and numbers out."""
