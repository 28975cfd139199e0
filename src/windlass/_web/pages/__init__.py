"""One room or module for each page: what it asks ``request.admin``, and what its template gets.

No SQL, no access rules, no HTML.
"""
