-- The schema of the first version as it was, with one report charged and queued.
PRAGMA journal_mode = WAL;
CREATE TABLE charges (                  -- one row per report ever made: the ledger
    metric TEXT NOT NULL, version INTEGER NOT NULL, window TEXT NOT NULL, dimensions TEXT NOT NULL,
    nano_epsilon INTEGER NOT NULL,
    PRIMARY KEY (metric, version, window, dimensions)
) WITHOUT ROWID;
CREATE TABLE totals (                   -- sums: nano-epsilon for life and by UTC day, reports and bytes queued
    scope TEXT PRIMARY KEY, amount INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE open_reports (             -- randomised, not yet in a batch
    id INTEGER PRIMARY KEY, owner TEXT NOT NULL, due_at REAL NOT NULL, period TEXT NOT NULL, last_date TEXT,
    body TEXT NOT NULL
);
CREATE TABLE batches (                  -- sealed: these bytes are what every try sends
    batch_id BLOB PRIMARY KEY, owner TEXT NOT NULL, until TEXT NOT NULL, reports INTEGER NOT NULL,
    tried_at REAL NOT NULL, in_doubt INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE TABLE notes (                    -- consent, back-off, cached registry
    name TEXT PRIMARY KEY, value TEXT NOT NULL
) WITHOUT ROWID
;
PRAGMA user_version = 1;
INSERT INTO charges VALUES ('dark_mode', 1, '2025-12-31', '()', 1500000000);
INSERT INTO totals VALUES ('2025-12-31', 1500000000), ('lifetime', 1500000000), ('queued reports', 1), ('queued bytes', 40);
INSERT INTO open_reports VALUES (1, 'somebody', 1767229200.0, 'day', '2026-12-31', '{"data":1}');
INSERT INTO notes VALUES ('consent', 'yes');
