"""Users and roles of the dashboard, for ``app.dashboard(auth=…)``."""

from windlass.errors import MissingDependency

try:
    import jinja2
    import starlette
except ImportError as _missing:
    raise MissingDependency("The dashboard", "windlass[web]") from _missing

from windlass._web.security.roles import Person, Role

__all__ = ["Person", "Role"]

del jinja2, starlette
