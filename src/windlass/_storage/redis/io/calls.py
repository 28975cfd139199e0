"""How a server is asked to run scripts: as functions of a library, or by EVAL."""

from __future__ import annotations

from collections.abc import Sequence

from redis.exceptions import NoScriptError, ResponseError

from windlass._storage.redis.io.dialer import Argument, pack_command
from windlass._storage.redis.io.scripts import Script, eval_form, library

__all__ = ["ScriptCalls"]

_NOT_LOADED = "function not found"
_LOADED_ALREADY = "already exists"


class ScriptCalls:
    """The form in which all connections of one storage call scripts.

    It begins with functions, unless they are switched off. The first refusal changes it to EVAL for
    good: servers before Redis 7, some managed services and some ACLs have no functions.
    """

    def __init__(self, *, functions: bool) -> None:
        """``functions=False`` never uses functions."""
        self.functions: bool = functions
        self._why = "functions=off"

    def __str__(self) -> str:
        if self.functions:
            return f"functions of the library {library().name}"
        return f"EVALSHA ({self._why})"

    def command(
        self, script: Script, arguments: Sequence[Argument], *, with_text: bool = False
    ) -> bytes:
        """Write the command that runs ``script``, whose only key is ``arguments[0]``.

        ``with_text``: where scripts are called by EVAL, send the text, not its SHA.
        """
        if self.functions:
            return pack_command(("FCALL", library().function_of(script), 1, *arguments))
        form = eval_form(script.name)
        if with_text:
            return pack_command(("EVAL", form.text, 1, *arguments))
        return pack_command(("EVALSHA", form.sha, 1, *arguments))

    def load_command(self) -> bytes:
        """Write the command that loads the library."""
        return pack_command(("FUNCTION", "LOAD", library().text))

    def is_missing(self, error: ResponseError) -> bool:
        """Tell whether the server does not have the script: another server, or one that forgot."""
        return isinstance(error, NoScriptError) or _NOT_LOADED in str(error).lower()

    def is_loaded(self, error: ResponseError) -> bool:
        """Tell whether the library could not be loaded because another process was faster."""
        return _LOADED_ALREADY in str(error).lower()

    def is_refused(self, error: ResponseError) -> bool:
        """Tell whether the server does not know FCALL, or does not permit it to this user."""
        return "fcall" in str(error).lower()

    def use_eval(self, error: ResponseError) -> None:
        """Call scripts by EVAL from now on."""
        self.functions, self._why = False, str(error).partition(", with args")[0]
