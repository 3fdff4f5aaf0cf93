-- The tables of versions 1 to 4, as the programs of that time made them; a line that ends in a version came with it.
CREATE TABLE default_branches ( -- 4
    url TEXT NOT NULL, -- 4
    branch TEXT NOT NULL, -- 4
    PRIMARY KEY (url) -- 4
); -- 4
CREATE TABLE offers (
    code TEXT NOT NULL,
    kind TEXT NOT NULL,
    retired BOOLEAN NOT NULL,
    price TEXT, -- 1b
    PRIMARY KEY (code)
);
CREATE TABLE organizations (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    slug TEXT NOT NULL,
    parent_id TEXT,
    active BOOLEAN NOT NULL,
    entitlements JSON NOT NULL,
    offer_code TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (slug)
); -- 2
CREATE TABLE rate_limits ( -- 2
    organization_id TEXT NOT NULL, -- 2
    remaining FLOAT NOT NULL, -- 2
    counted_at BIGINT NOT NULL, -- 2
    PRIMARY KEY (organization_id) -- 2
);
CREATE TABLE runwarden_meta (
    "key" TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE tokens (
    id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    alias TEXT,
    scopes JSON NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT,
    PRIMARY KEY (id),
    UNIQUE (digest)
);
CREATE INDEX ix_tokens_organization_id ON tokens (organization_id);
CREATE TABLE workers (
    executor TEXT NOT NULL,
    host TEXT NOT NULL, -- 2
    sandbox TEXT NOT NULL,
    pid INTEGER NOT NULL,
    concurrency INTEGER NOT NULL, -- 2
    started_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (executor)
);
CREATE TABLE agents (
    id TEXT NOT NULL,
    organization_id TEXT,
    name TEXT NOT NULL,
    argv JSON NOT NULL,
    timeout_s FLOAT NOT NULL,
    network BOOLEAN NOT NULL,
    environment JSON NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (organization_id, name),
    FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX agents_for_all ON agents (name) WHERE organization_id IS NULL; -- 3
CREATE TABLE hosts (
    id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    platform TEXT NOT NULL,
    host TEXT NOT NULL,
    "group" TEXT,
    probe TEXT NOT NULL,
    api_url TEXT,
    clone_url TEXT,
    token_env TEXT,
    connected_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (organization_id, platform),
    FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);
CREATE TABLE invitations (
    id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    email TEXT NOT NULL,
    code_digest TEXT NOT NULL,
    sent_at BIGINT,
    expires_at BIGINT NOT NULL,
    accepted_at BIGINT,
    PRIMARY KEY (id),
    FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE,
    UNIQUE (code_digest)
);
CREATE TABLE repositories (
    id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    name TEXT NOT NULL,
    platform TEXT NOT NULL,
    path TEXT NOT NULL,
    path_key TEXT NOT NULL,
    url TEXT NOT NULL,
    project_id BIGINT,
    webhook_configured BOOLEAN NOT NULL,
    protected JSON, -- 4
    PRIMARY KEY (id),
    UNIQUE (organization_id, platform, path_key),
    UNIQUE (organization_id, name),
    FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);
CREATE TABLE runs (
    id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    status TEXT NOT NULL,
    branch TEXT NOT NULL,
    platform TEXT NOT NULL,
    path TEXT NOT NULL,
    path_key TEXT NOT NULL,
    url TEXT NOT NULL,
    metadata JSON,
    turn INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);
CREATE INDEX runs_by_repository ON runs (organization_id, path_key, created_at, id);
CREATE INDEX runs_by_status ON runs (organization_id, status, created_at, id);
CREATE INDEX runs_newest ON runs (organization_id, created_at, id);
CREATE TABLE trials ( -- 1b
    organization_id TEXT NOT NULL, -- 1b
    signup_code TEXT, -- 1b
    signup_price TEXT, -- 1b
    started_at BIGINT, -- 1b
    granted_code TEXT, -- 1b
    PRIMARY KEY (organization_id), -- 1b
    FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE -- 1b
); -- 1b
CREATE TABLE mails ( -- 1b
    invitation_id TEXT NOT NULL, -- 1b
    code TEXT, -- 1b
    state TEXT NOT NULL, -- 1b
    attempts INTEGER NOT NULL, -- 1b
    due_at BIGINT NOT NULL, -- 1b
    failure TEXT, -- 1b
    PRIMARY KEY (invitation_id), -- 1b
    FOREIGN KEY(invitation_id) REFERENCES invitations (id) ON DELETE CASCADE -- 1b
); -- 1b
CREATE INDEX mails_due ON mails (state, due_at); -- 1b
CREATE TABLE turn_files ( -- 2
    run_id TEXT NOT NULL, -- 2
    number INTEGER NOT NULL, -- 2
    kind TEXT NOT NULL, -- 2
    content BLOB NOT NULL, -- 2
    PRIMARY KEY (run_id, number, kind), -- 2
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE -- 2
); -- 2
CREATE TABLE turns (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    status TEXT NOT NULL,
    instructions TEXT NOT NULL,
    inputs JSON NOT NULL,
    attempt INTEGER NOT NULL,
    executor TEXT,
    accepted_at BIGINT NOT NULL,
    dispatched_at BIGINT,
    started_at BIGINT,
    finished_at BIGINT,
    commit_sha TEXT,
    summary TEXT,
    failure TEXT,
    PRIMARY KEY (run_id, number),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE INDEX turns_by_status ON turns (status, started_at);
CREATE INDEX turns_waiting ON turns (dispatched_at, accepted_at);
