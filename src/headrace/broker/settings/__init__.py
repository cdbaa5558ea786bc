"""Settings while the broker runs: the values in force, and which alterations are valid.

**What lives here.** `dynamic_config.py` keeps the broker's configuration and that of every open log as the image says.
`config_rules.py` answers the controller's questions from the one table of settings (`headrace.config`): is this value
possible, what is the default, what does a topic inherit.

**What comes in and goes out.** The file's configuration comes in once, changes of the image each time one is
committed; out comes a new, immutable `BrokerConfig`, and `Log.configure` for the logs that a change concerns.

**What may never happen.** A stored value that this release does not accept stops the broker, or takes effect: it is
ignored, and logged once. A setting exists outside the table.
"""
