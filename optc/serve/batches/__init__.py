"""``/v1/files`` and ``/v1/batches``: files of requests, answered when nothing else is to be done.

https://platform.openai.com/docs/api-reference/batch. All of it is kept in one folder: a database in
SQLite and the files. What was answered is not answered again after a restart.
"""
