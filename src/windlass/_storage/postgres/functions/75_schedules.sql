-- Schedules, and the one step that fires them.

-- `ScheduleStore.due`. One row with NULL as the name where none is, or all are paused.
CREATE OR REPLACE FUNCTION due_schedules(p_at timestamptz, p_limit bigint)
RETURNS TABLE (
    at timestamptz, following timestamptz, paused boolean, name text, revision bigint, body text,
    next_at timestamptz, declared_at timestamptz
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    at := coalesce(p_at, clock_timestamp());
    paused := EXISTS (SELECT 1 FROM switches w WHERE w.name = 'schedules');
    IF paused THEN
        RETURN NEXT;
        RETURN;
    END IF;
    following := (SELECT s.next_at FROM schedules s WHERE s.next_at > at
                   ORDER BY s.next_at LIMIT 1);
    RETURN QUERY
    SELECT at, following, paused, s.name, s.revision, s.body, s.next_at, s.declared_at FROM schedules s
     WHERE s.next_at <= at ORDER BY s.next_at, s.name LIMIT p_limit;
    IF NOT FOUND THEN
        RETURN NEXT;
    END IF;
END $$;

-- `ScheduleStore.pause` and `ScheduleStore.resume`.
CREATE OR REPLACE FUNCTION switch_schedules(
    p_at timestamptz, p_durable boolean, p_paused boolean, p_audit text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz := coalesce(p_at, clock_timestamp());
BEGIN
    PERFORM commit_durably(p_durable);
    IF p_paused THEN
        INSERT INTO switches (name, at) VALUES ('schedules', v_at) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM switches w WHERE w.name = 'schedules';
    END IF;
    PERFORM keep_audit(p_audit, v_at, 1);
END $$;

-- Writers of schedules lock their names first, those that are not stored, too, and then their
-- rows, always in the same order: two calls with the same names never wait for each other in a ring.
-- These locks come before all others: no holder of another lock asks for them.
CREATE OR REPLACE FUNCTION lock_schedules(p_names text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_lock bigint;
BEGIN
    FOR v_lock IN
        SELECT DISTINCT hashtextextended(current_schema || '/schedule/' || n.name, 0) AS number
          FROM unnest(p_names) AS n (name) ORDER BY number
    LOOP
        PERFORM pg_advisory_xact_lock(v_lock);
    END LOOP;
    PERFORM 1 FROM schedules s WHERE s.name = ANY (p_names) ORDER BY s.name FOR UPDATE;
END $$;

-- `ScheduleStore.write`. Arrays side by side, one entry per write.
--   p_bodies   NULL deletes
--   p_jobs     JSON: a list as `insert_listed` takes it, or NULL; none of them replaces or raises
--   p_actives  an array of uuid as text, or NULL
--   p_mosts    how many of these may not be active; NULL: any number may
--   p_audits   who ordered it, for `keep_audit`, or NULL
-- The answers, in order, as JSON (the struct `ScheduleAnswer`): written, stale, busy or
-- held, and what else there is to say.
-- An undefined limit: WL001, its name as the detail, and nothing is written.
-- Waiting for a key under decision in an open transaction: 55P03 after lock_timeout.
-- Jobs are stored together: keys are taken in the order of keys, for any order of the writes.
-- A key that is taken between the look at it and that moment: 40001, and the same again finds it.
CREATE OR REPLACE FUNCTION put_schedules(
    p_at timestamptz, p_durable boolean, p_names text[], p_revisions bigint[], p_bodies text[],
    p_next_ats timestamptz[], p_jobs text[], p_actives text[], p_mosts integer[],
    p_audits text[] DEFAULT NULL
) RETURNS text[]
LANGUAGE plpgsql SET lock_timeout TO '2s' AS $$
DECLARE
    v_at timestamptz;
    v_stored record;
    v_revision bigint;
    v_active uuid[];
    v_jobs text[] := '{}';
    v_ids uuid[] := '{}';
    v_keys text[] := '{}';
    v_owners integer[] := '{}';
    v_new record;
    v_answers jsonb[] := '{}';
    i integer;
BEGIN
    PERFORM commit_durably(p_durable);
    PERFORM require_limits(names_in(ARRAY(
        SELECT j.job ->> 'limits'
          FROM unnest(p_jobs) AS t (jobs), json_array_elements(t.jobs::json) AS j (job)
         WHERE j.job ->> 'limits' IS NOT NULL)));
    PERFORM lock_schedules(p_names);
    v_at := coalesce(p_at, clock_timestamp());
    FOR i IN 1 .. cardinality(p_names) LOOP
        SELECT s.revision, s.body INTO v_stored FROM schedules s WHERE s.name = p_names[i];
        v_revision := coalesce(v_stored.revision, 0);
        IF (v_revision = 0 AND p_bodies[i] IS NULL)
           OR (v_revision = p_revisions[i] + 1 AND v_stored.body = p_bodies[i]) THEN
            v_answers := v_answers || jsonb_build_object('what', 'written');
            CONTINUE;
        ELSIF v_revision <> p_revisions[i] THEN
            v_answers := v_answers || jsonb_build_object('what', 'stale');
            CONTINUE;
        END IF;
        IF p_mosts[i] IS NOT NULL THEN
            v_active := coalesce(p_actives[i]::uuid[], '{}');
            IF v_active && v_ids THEN
                -- What an earlier one of these writes brings counts, if it is stored.
                v_answers := insert_together(v_at, p_durable, v_jobs, v_owners, v_answers);
                v_jobs := '{}';
                v_ids := '{}';
                v_keys := '{}';
                v_owners := '{}';
            END IF;
            IF (SELECT count(*) FROM jobs j WHERE j.id = ANY (v_active) AND j.state + 0 <= 1)
               >= p_mosts[i] THEN
                v_answers := v_answers || jsonb_build_object('what', 'busy');
                CONTINUE;
            END IF;
        END IF;
        SELECT * INTO v_new FROM meet_holders(p_jobs[i], v_ids, v_keys, v_at);
        IF v_new.holders IS NOT NULL THEN
            v_answers := v_answers
                || jsonb_build_object('what', 'held', 'holders', v_new.holders);
            CONTINUE;
        END IF;
        IF p_bodies[i] IS NULL THEN
            DELETE FROM schedules s WHERE s.name = p_names[i];
        ELSIF v_revision = 0 THEN
            INSERT INTO schedules (name, revision, next_at, body)
            VALUES (p_names[i], 1, p_next_ats[i], p_bodies[i]);
        ELSE
            UPDATE schedules s
               SET revision = v_revision + 1, next_at = p_next_ats[i], body = p_bodies[i]
             WHERE s.name = p_names[i];
        END IF;
        IF p_jobs[i] IS NOT NULL THEN
            v_jobs := v_jobs || p_jobs[i];
            v_ids := v_ids || v_new.ids;
            v_keys := v_keys || v_new.keys;
            v_owners := v_owners || array_fill(i, ARRAY[cardinality(v_new.ids)]);
        END IF;
        PERFORM keep_audit(p_audits[i], v_at, 1);
        v_answers := v_answers || jsonb_build_object('what', 'written', 'known', v_new.known);
    END LOOP;
    v_answers := insert_together(v_at, p_durable, v_jobs, v_owners, v_answers);
    RETURN ARRAY(SELECT a.answer::text FROM unnest(v_answers) WITH ORDINALITY AS a (answer, n)
                  ORDER BY a.n);
END $$;

-- Look at the jobs of one write, JSON as above, before they are stored.
--   p_ids, p_keys  the jobs of writes before it that are not stored yet, side by side
-- The answer: their ids and keys, side by side; which of them are stored, as a JSON list; and, as a
-- JSON object, who holds the keys of others. NULL: all are free, or their holders are late.
CREATE OR REPLACE FUNCTION meet_holders(
    p_jobs text, p_ids uuid[], p_keys text[], p_now timestamptz,
    OUT ids uuid[], OUT keys text[], OUT known jsonb, OUT holders jsonb
)
LANGUAGE plpgsql AS $$
DECLARE
    v_job record;
    v_holder uuid;
BEGIN
    ids := '{}';
    keys := '{}';
    known := '[]';
    FOR v_job IN
        SELECT (j.job ->> 'id')::uuid AS id, j.job ->> 'key' AS key
          FROM json_array_elements(p_jobs::json) WITH ORDINALITY AS j (job, n) ORDER BY j.n
    LOOP
        IF v_job.id = ANY (p_ids) OR EXISTS (SELECT 1 FROM jobs j WHERE j.id = v_job.id) THEN
            known := known || to_jsonb(encode(uuid_send(v_job.id), 'hex'));
        ELSIF v_job.key IS NOT NULL THEN
            SELECT j.id INTO v_holder FROM keys k JOIN jobs j ON j.seq = k.seq
             WHERE k.key = v_job.key AND (k.until IS NULL OR k.until > p_now)
               AND NOT coalesce(j.state = 0 AND j.expires_at <= p_now
                                AND j.key_window <> 'for_a_time', false);
            v_holder := coalesce(
                v_holder, p_ids[array_position(p_keys, v_job.key)],
                ids[array_position(keys, v_job.key)]);
            IF v_holder <> v_job.id THEN
                holders := coalesce(holders, '{}') || jsonb_build_object(
                    encode(uuid_send(v_job.id), 'hex'), encode(uuid_send(v_holder), 'hex'));
            END IF;
        END IF;
        ids := ids || v_job.id;
        keys := keys || v_job.key;
    END LOOP;
END $$;

-- Store the jobs of several lists, in their order.
--   p_owners   for each job the place of its write among the answers
-- The answers, with the jobs that were discarded for these.
CREATE OR REPLACE FUNCTION insert_together(
    p_at timestamptz, p_durable boolean, p_lists text[], p_owners integer[], p_answers jsonb[]
) RETURNS jsonb[]
LANGUAGE plpgsql AS $$
DECLARE
    v_met record;
    v_owner integer;
BEGIN
    IF p_lists = '{}' THEN
        RETURN p_answers;
    END IF;
    FOR v_met IN
        SELECT i.place, i.holder, i.replaced FROM insert_listed(p_at, p_durable, (
            SELECT json_agg(j.job ORDER BY t.n, j.n)
              FROM unnest(p_lists) WITH ORDINALITY AS t (jobs, n),
                   json_array_elements(t.jobs::json) WITH ORDINALITY AS j (job, n))) AS i
    LOOP
        IF v_met.replaced IS NOT NULL THEN
            RAISE EXCEPTION 'the key of a job was taken by job % just now', v_met.holder
                USING ERRCODE = 'serialization_failure';
        END IF;
        v_owner := p_owners[v_met.place];
        p_answers[v_owner] := jsonb_set(
            p_answers[v_owner], '{expired}',
            coalesce(p_answers[v_owner] -> 'expired', '[]') || to_jsonb(v_met.holder));
    END LOOP;
    RETURN p_answers;
END $$;

-- The same for processes of an older Windlass, which know words only. They do not know that a key can
-- be held: for them it is stale, and they decide again.
CREATE OR REPLACE FUNCTION write_schedules(
    p_at timestamptz, p_durable boolean, p_names text[], p_revisions bigint[], p_bodies text[],
    p_next_ats timestamptz[], p_jobs text[], p_actives text[], p_mosts integer[],
    p_audits text[] DEFAULT NULL
) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT replace(a.answer::json ->> 'what', 'held', 'stale')
          FROM unnest(put_schedules(
                   p_at, p_durable, p_names, p_revisions, p_bodies, p_next_ats, p_jobs, p_actives,
                   p_mosts, p_audits)) WITH ORDINALITY AS a (answer, n)
         ORDER BY a.n);
END $$;

CREATE OR REPLACE FUNCTION declare_schedules(p_at timestamptz, p_names text[]) RETURNS void
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
BEGIN
    PERFORM commit_durably(false);
    PERFORM 1 FROM schedules s WHERE s.name = ANY (p_names) ORDER BY s.name FOR UPDATE;
    UPDATE schedules s SET declared_at = coalesce(p_at, clock_timestamp())
     WHERE s.name = ANY (p_names);
END $$;
