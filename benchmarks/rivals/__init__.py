"""What weft costs beside NATS, MQTT, Redis, ZeroMQ and Zenoh: `./weft bench rivals`."""
