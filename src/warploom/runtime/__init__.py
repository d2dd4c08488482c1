"""One call: which machine runs it, are its arguments right, and what does each machine need to run it?"""
