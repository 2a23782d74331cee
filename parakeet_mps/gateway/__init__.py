"""The HTTP API: everything between a request and the recogniser's answer. Needs no GPU and knows no acoustic model."""
