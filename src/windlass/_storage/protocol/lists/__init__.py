"""Lists of jobs: the filter, the order and the page.

Nothing here reads a store: `AdminStore.find` does.
"""
