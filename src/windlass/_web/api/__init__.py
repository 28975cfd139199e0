"""The HTTP API under ``/api/v1``: JSON, the same roles and the same audit records as the pages.

The route table and the OpenAPI document are made of the same endpoints.
"""
