"""What to say when a run ends badly, and the report of one that ends well."""
