"""The app for processes that Django has not started: importing this sets it up.

``DJANGO_SETTINGS_MODULE=shop.settings windlass worker windlass.integrations.django.ready:app``
"""

from __future__ import annotations

import django
from django.apps import apps

from windlass._app.app import Windlass
from windlass.integrations.django import get_app
from windlass.integrations.django.apps import discover

__all__ = ["app"]

if not apps.ready:
    django.setup()
discover()
app: Windlass = get_app()
