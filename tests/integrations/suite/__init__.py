"""Django's own tests of its Tasks, run with our backend: `make django-suite`."""
