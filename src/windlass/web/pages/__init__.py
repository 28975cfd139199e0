"""One file for each page: what it asks ``visit.admin``, and what its template is given."""
