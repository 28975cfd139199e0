"""The same random steps on a backend and on the memory backend: all answers agree."""
