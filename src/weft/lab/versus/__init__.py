"""Every system on the same subscriptions, with the same measures: which one, at what cost."""
