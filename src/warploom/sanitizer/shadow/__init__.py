"""What was last done to each byte."""
