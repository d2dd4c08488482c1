"""Vector clocks and the edges between them."""
