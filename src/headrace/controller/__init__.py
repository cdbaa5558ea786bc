"""The controller's decisions, one module a concern: an image and a request in, records and a reply out."""
