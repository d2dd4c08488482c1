"""What completes later: bulk copies, tensor copies, and the order in which asynchronous operations take effect."""
