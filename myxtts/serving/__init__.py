"""A voice over HTTP and Wyoming: the speech API, its queue, added voices, and the page."""
