"""Interactive pages, marimo notebooks: `warploom lab`. Each only asks the package's functions and draws the answer."""
