"""The dashboard: pages over ``app.admin``, closed until somebody is let in."""

from windlass.errors import MissingDependency

try:
    import jinja2
    import starlette
except ImportError as error:
    raise MissingDependency("The dashboard", "windlass[web]") from error

from windlass.web.people import Person, Role

__all__ = ["Person", "Role"]

del jinja2, starlette
