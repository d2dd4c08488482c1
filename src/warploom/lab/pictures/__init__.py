"""The pictures of docs/ladder, drawn from the package itself: kernels, layouts, emulated runs and evidence files."""
