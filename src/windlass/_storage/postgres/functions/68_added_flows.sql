-- Flows that successes add, and those that are added from outside.

-- Whether a flow that a success adds is left out: its id, or that of one of its jobs, is stored.
CREATE OR REPLACE FUNCTION is_flow_stored(p_id uuid, p_jobs uuid[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM flows f WHERE f.id = p_id)
        OR EXISTS (SELECT 1 FROM parts p WHERE p.added_id = p_id)
        OR EXISTS (SELECT 1 FROM jobs j WHERE j.id = ANY (p_jobs));
END $$;

-- The ids of the jobs of a flow.
CREATE OR REPLACE FUNCTION jobs_of_request(p_request json) RETURNS uuid[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT (t.job ->> 'id')::uuid
                   FROM json_array_elements(p_request -> 'jobs') AS t (job));
END $$;

-- Store the flows that successes add, before the ends of members are counted. Returns the ids of the
-- jobs of those that are left out. Those of members only wait in `added_flows`: the count of the member's
-- end stores them. Others, and those of callbacks, are started, in the order of their keys.
--   p_flows   texts of lists of flows, each as `start_for_user` reads it; beside it p_parts: of the members
CREATE OR REPLACE FUNCTION add_flows(p_flows text[], p_parts bigint[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_flow record;
    v_answer json;
    v_left text[] := '{}';
BEGIN
    FOR v_flow IN
        SELECT r.request, (r.request -> 'flows' -> 0 ->> 'id')::uuid AS id,
               jobs_of_request(r.request) AS jobs, p.id AS part, p.kind = 0 AS joins,
               f.cancelled
          FROM unnest(p_flows, p_parts) WITH ORDINALITY AS t (requests, part, n)
         CROSS JOIN json_array_elements(t.requests::json) WITH ORDINALITY AS r (request, n)
          LEFT JOIN parts p ON p.id = t.part
          LEFT JOIN flows f ON f.number = p.flow
         ORDER BY (r.request -> 'flows' -> 0 ->> 'key') COLLATE "C", t.n, r.n
    LOOP
        v_answer := NULL;
        IF is_flow_stored(v_flow.id, v_flow.jobs) OR (v_flow.joins AND v_flow.cancelled)
           OR EXISTS (SELECT 1 FROM added_flows a WHERE a.part = v_flow.part AND a.id = v_flow.id)
        THEN
            v_answer := '[null, false, false]';
        ELSIF v_flow.joins THEN
            INSERT INTO added_flows (id, part, request)
            VALUES (v_flow.id, v_flow.part, v_flow.request);
        ELSE
            v_answer := start_for_user(v_flow.request::text)::json;
        END IF;
        IF NOT (v_answer ->> 1)::boolean THEN
            v_left := v_left || ARRAY(SELECT encode(uuid_send(j.id), 'hex')
                                        FROM unnest(v_flow.jobs) AS j (id));
        END IF;
    END LOOP;
    RETURN v_left;
END $$;

-- The parts of a flow, whose lock the caller has, that the first parts of a new one wait for, and what these
-- learn of them now: how many have not ended, have failures that matter, and were not needed.
--   p_request   see `join_flow`
CREATE OR REPLACE FUNCTION standing_of(
    p_flow bigint, p_request json, OUT numbers integer[], OUT stricts boolean[],
    OUT waiting integer, OUT broken integer, OUT unneeded integer
)
LANGUAGE plpgsql AS $$
BEGIN
    numbers := ARRAY(SELECT t.n::integer
                       FROM json_array_elements_text(p_request -> 'after') WITH ORDINALITY AS t (n, o)
                      ORDER BY t.o);
    stricts := ARRAY(SELECT t.is_strict::boolean
                      FROM json_array_elements_text(p_request -> 'strict') WITH ORDINALITY
                           AS t (is_strict, o)
                     ORDER BY t.o);
    SELECT cardinality(numbers) - count(*) FILTER (WHERE p.told_over),
           count(*) FILTER (WHERE p.told_broken AND e.strict),
           count(*) FILTER (WHERE p.told_unneeded AND e.strict)
      INTO waiting, broken, unneeded
      FROM unnest(numbers, stricts) AS e (number, strict)
      JOIN parts p ON p.flow = p_flow AND p.number = e.number;
END $$;

-- Let parts of a flow, whose lock the caller has, tell those new ones that wait for them: all from the number
-- p_first on that wait for nothing else.
CREATE OR REPLACE FUNCTION feed_parts(
    p_flow bigint, p_first integer, p_after integer[], p_strict boolean[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_new integer[] := ARRAY(SELECT p.number FROM parts p
                              WHERE p.flow = p_flow AND p.number >= p_first AND p.after = p_after
                              ORDER BY p.number);
BEGIN
    UPDATE parts p
       SET feeds = p.feeds || v_new,
           feeds_strict = p.feeds_strict || array_fill(e.strict, ARRAY[cardinality(v_new)])
      FROM unnest(p_after, p_strict) AS e (number, strict)
     WHERE p.flow = p_flow AND p.number = e.number;
END $$;

-- Let the parts of a flow join the flow of p_part, which is not over before it. All of its jobs are blocked
-- at first. Returns the new parts. The caller has locked the flow. p_part is the end of the flow: it comes
-- behind all parts that are there.
--   p_request   as `start_for_user` reads it; after, strict: parts of the running flow that the new ones wait
--               for which wait for nothing else, and whether a failure there counts
CREATE OR REPLACE FUNCTION join_flow(p_part bigint, p_request json, p_now timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_part record;
    v_first integer;
    v_ids bigint[];
    v_members bigint[];
    v_before record;
BEGIN
    SELECT p.flow, p.flow_id, p.number, p.kind INTO v_part FROM parts p WHERE p.id = p_part;
    v_first := (SELECT max(p.number) + 1 FROM parts p WHERE p.flow = v_part.flow);
    SELECT s.* INTO v_before FROM standing_of(v_part.flow, p_request) AS s;
    WITH asked AS MATERIALIZED (
        SELECT t.*, CASE WHEN t.kind = 2 THEN 4 ELSE t.kind END::smallint AS its_kind,
               t.after = '{}' AS is_first
          FROM json_to_recordset(p_request -> 'parts') AS t (
                   number integer, name text, kind smallint, task text, failed boolean,
                   after integer[], strict boolean[], feeds integer[], feeds_strict boolean[],
                   jobs integer)
    ), stored AS (
        INSERT INTO parts (flow, flow_id, number, kind, failed, waiting, broken, unneeded, name, task,
                           after, strict, feeds, feeds_strict, rank, added_id, added_first,
                           counts_for)
        SELECT v_part.flow, v_part.flow_id, v_first + a.number, a.its_kind, a.failed,
               CASE WHEN a.is_first THEN v_before.waiting ELSE cardinality(a.after) END,
               CASE WHEN a.is_first THEN v_before.broken ELSE 0 END,
               CASE WHEN a.is_first THEN v_before.unneeded ELSE 0 END,
               CASE WHEN a.its_kind = 4 THEN p_request -> 'flows' -> 0 ->> 'name' ELSE a.name END,
               a.task,
               CASE WHEN a.is_first THEN v_before.numbers
                    ELSE ARRAY(SELECT v_first + e.n FROM unnest(a.after) WITH ORDINALITY AS e (n, o)
                                ORDER BY e.o) END,
               CASE WHEN a.is_first THEN v_before.stricts ELSE a.strict END,
               ARRAY(SELECT v_first + e.n FROM unnest(a.feeds) WITH ORDINALITY AS e (n, o)
                      ORDER BY e.o), a.feeds_strict,
               part_rank(a.its_kind, v_first + a.number,
                         CASE WHEN v_part.kind = 2 THEN 0 ELSE v_first END),
               CASE WHEN a.its_kind = 4 THEN (p_request -> 'flows' -> 0 ->> 'id')::uuid END,
               CASE WHEN a.its_kind = 4 THEN v_first END,
               CASE WHEN a.its_kind = 4 THEN v_part.number END
          FROM asked a ORDER BY a.number
        RETURNING id, number
    ), counted AS (
        INSERT INTO part_counts (part, total, open, blocked)
        SELECT s.id, a.jobs, a.jobs, a.jobs
          FROM stored s JOIN asked a ON a.number = s.number - v_first
    )
    SELECT array_agg(s.id ORDER BY s.number) INTO v_ids FROM stored s;
    v_members := ARRAY(
        SELECT v_ids[t.place::integer]
          FROM json_array_elements_text(p_request -> 'places') WITH ORDINALITY AS t (place, n)
         ORDER BY t.n);
    IF v_members <> '{}' THEN
        PERFORM insert_listed(
            p_now, NULL, p_request -> 'jobs', p_parts => v_members,
            p_blocked => array_fill(true, ARRAY[cardinality(v_members)]));
    END IF;
    IF v_before.numbers <> '{}' THEN
        PERFORM feed_parts(v_part.flow, v_first, v_before.numbers, v_before.stricts);
    END IF;
    UPDATE parts p SET adding = p.adding + 1 WHERE p.id = p_part;
    UPDATE flows f SET grown = true WHERE f.number = v_part.flow AND NOT f.grown;
    RETURN v_ids;
END $$;

-- `join_added_flows`, if nobody stores a flow with the same id meanwhile.
CREATE OR REPLACE FUNCTION join_noted_flows(p_parts bigint[], p_now timestamptz) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_flow record;
    v_new bigint[] := '{}';
BEGIN
    FOR v_flow IN
        WITH added AS (
            DELETE FROM added_flows a WHERE a.part = ANY (p_parts)
            RETURNING a.number, a.id, a.part, a.request
        )
        SELECT d.* FROM added d JOIN parts p ON p.id = d.part JOIN flows f ON f.number = p.flow
         WHERE NOT f.cancelled AND NOT f.gone ORDER BY d.number
    LOOP
        IF NOT is_flow_stored(v_flow.id, jobs_of_request(v_flow.request)) THEN
            v_new := v_new || join_flow(v_flow.part, v_flow.request, p_now);
        END IF;
    END LOOP;
    RETURN v_new;
END $$;

-- Store the flows that members of these parts have added. Returns the new parts, which have something to
-- tell. The caller has locked the counts of the parts and their flows. In a cancelled flow nothing is added.
-- A flow whose id another transaction has stored meanwhile is left out: the next attempt sees it.
CREATE OR REPLACE FUNCTION join_added_flows(p_parts bigint[], p_now timestamptz) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_constraint text;
BEGIN
    FOR v_attempt IN 1 .. 10 LOOP
        BEGIN
            RETURN join_noted_flows(p_parts, p_now);
        EXCEPTION WHEN unique_violation THEN
            GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
            IF v_constraint <> 'parts_added' OR v_attempt = 10 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;

-- `FlowStore.add`: added, repeated, ended, sealed or unknown. p_request: as `start_for_user` reads it.
--
-- The flow is locked first, and its lock guards all that is read and changed: no count of a part that is
-- there changes, so none is waited for (05_locks.sql). All jobs are new and blocked.
CREATE OR REPLACE FUNCTION add_to_flow(
    p_at timestamptz, p_durable boolean, p_flow uuid, p_request text
) RETURNS text
LANGUAGE plpgsql SET lock_timeout TO '3s' AS $$
DECLARE
    v_now timestamptz := coalesce(p_at, clock_timestamp());
    v_request json := p_request::json;
    v_id uuid := (v_request -> 'flows' -> 0 ->> 'id')::uuid;
    v_jobs uuid[] := jobs_of_request(v_request);
    v_flow record;
    v_new bigint[];
    v_members bigint[];
    v_constraint text;
BEGIN
    PERFORM commit_durably(p_durable);
    SELECT f.number, f.state, f.cancelled, f.sealed, f.expires_at INTO v_flow FROM flows f
     WHERE f.id = p_flow AND NOT f.gone FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    ELSIF EXISTS (SELECT 1 FROM parts p WHERE p.added_id = v_id AND p.flow = v_flow.number) THEN
        RETURN 'repeated';
    ELSIF is_flow_stored(v_id, '{}') THEN
        RAISE EXCEPTION 'the id names another call'
            USING ERRCODE = 'WL424', DETAIL = encode(uuid_send(v_id), 'hex');
    ELSIF v_flow.state > 0 OR v_flow.cancelled OR v_flow.expires_at <= v_now THEN
        RETURN 'ended';
    ELSIF v_flow.sealed THEN
        RETURN 'sealed';
    END IF;
    BEGIN
        v_new := join_flow(
            (SELECT p.id FROM parts p WHERE p.flow = v_flow.number AND p.kind = 2), v_request, v_now);
    EXCEPTION WHEN unique_violation THEN
        GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
        IF v_constraint <> 'parts_added' THEN
            RAISE;
        END IF;
        -- Another transaction has added it to another flow meanwhile.
        RAISE EXCEPTION 'the id names another call'
            USING ERRCODE = 'WL424', DETAIL = encode(uuid_send(v_id), 'hex');
    END;
    v_members := ARRAY(
        SELECT v_new[t.place::integer]
          FROM json_array_elements_text(v_request -> 'places') WITH ORDINALITY AS t (place, n)
         ORDER BY t.n);
    IF cardinality(v_jobs) <> (SELECT count(DISTINCT j.id)
                                 FROM unnest(v_jobs, v_members) AS t (id, part)
                                 JOIN jobs j ON j.id = t.id AND j.part = t.part) THEN
        PERFORM refuse_stored(v_jobs, v_members);
    END IF;
    PERFORM spread_parts(
        v_flow.number, ARRAY(SELECT p.number FROM parts p WHERE p.id = ANY (v_new)), v_now);
    RETURN 'added';
END $$;
