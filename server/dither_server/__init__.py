"""The server: takes batches over HTTP, judges them, keeps them durably, and shows what was published."""
