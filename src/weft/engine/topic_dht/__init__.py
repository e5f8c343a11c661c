"""The topic-aware DHT over arrays: places, roles, gossip, trees, crashes."""
