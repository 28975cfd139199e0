-- What falls due next in any queue: the promoter asks for it, and there may be a queue per tenant.
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0;
