"""From values to HTML: templates, assets, forms, confirmations, error pages and paging.

Nothing here asks a store.
"""
