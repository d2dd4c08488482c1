"""Interactive pages, marimo notebooks: `warploom lab`. Each calls only the package's functions and draws the result."""
