-- Which limited and solo jobs may start now.

-- A claim on a queue with lanes: the common line and the open bays, merged by their heads. The
-- caller has called `lock_lanes`.
--   p_common, p_priorities, p_dues   the head of the queue's common line, in order, locked
--   chosen      those of p_common that are to be started, by the caller
--   started     limited jobs that were started here: each must count before the next is judged
--   charged     the gates they took from
--   cut_short   stopped at a bound: the next call gets further
-- Looks at no more than p_room + 64 lanes.
CREATE OR REPLACE FUNCTION visit_lanes(
    p_queue text, p_room integer, p_worker text, p_now timestamptz,
    p_common bigint[], p_priorities integer[], p_dues timestamptz[],
    OUT chosen bigint[], OUT started bigint[], OUT charged text[], OUT cut_short boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_us bigint := us_of(p_now);
    v_visits integer := p_room + 64;
    v_room integer := p_room;
    v_next integer := 1;
    v_most integer := coalesce(cardinality(p_common), 0);
    v_bay record;
    v_bound record;
    v_lane bigint;
    v_job record;
    v_number integer;
    v_shut record;
    v_gate text;
    v_cost float8;
    v_opens_at bigint;
    v_busy boolean;
BEGIN
    chosen := '{}';
    started := '{}';
    charged := '{}';
    cut_short := false;
    WHILE v_room > 0 LOOP
        SELECT b.id, b.gate, b.cost, b.head_priority, b.head_due, b.head_seq INTO v_bay
          FROM bays b WHERE b.queue = p_queue AND b.opens_at = 0
         ORDER BY b.head_priority, b.head_due, b.head_seq LIMIT 1;
        IF NOT FOUND THEN
            -- No lane is open: the common line has all the room that is left.
            EXIT WHEN v_next > v_most;
            chosen := chosen || p_common[v_next : least(v_most, v_next + v_room - 1)];
            EXIT;
        END IF;
        IF v_next <= v_most AND (p_priorities[v_next], p_dues[v_next], p_common[v_next])
                              < (v_bay.head_priority, v_bay.head_due, v_bay.head_seq) THEN
            chosen := chosen || p_common[v_next];
            v_next := v_next + 1;
            v_room := v_room - 1;
            CONTINUE;
        END IF;
        IF v_visits = 0 THEN
            cut_short := true;
            EXIT;
        END IF;
        v_visits := v_visits - 1;
        -- The lane continues while its jobs come before all others: of its bay, of the other open
        -- bays, of the common line.
        SELECT l.id INTO v_lane FROM lanes l WHERE l.bay = v_bay.id
         ORDER BY l.head_priority, l.head_due, l.head_seq LIMIT 1;
        SELECT o.head_priority AS priority, o.head_due AS due, o.head_seq AS seq INTO v_bound
          FROM ((SELECT l.head_priority, l.head_due, l.head_seq FROM lanes l
                  WHERE l.bay = v_bay.id AND (l.head_priority, l.head_due, l.head_seq)
                        > (v_bay.head_priority, v_bay.head_due, v_bay.head_seq)
                  ORDER BY l.head_priority, l.head_due, l.head_seq LIMIT 1)
                UNION ALL
                (SELECT b.head_priority, b.head_due, b.head_seq FROM bays b
                  WHERE b.queue = p_queue AND b.opens_at = 0
                    AND (b.head_priority, b.head_due, b.head_seq)
                        > (v_bay.head_priority, v_bay.head_due, v_bay.head_seq)
                  ORDER BY b.head_priority, b.head_due, b.head_seq LIMIT 1)
                UNION ALL
                SELECT p_priorities[v_next], p_dues[v_next], p_common[v_next]
                 WHERE v_next <= v_most) AS o
         ORDER BY o.head_priority, o.head_due, o.head_seq LIMIT 1;
        v_gate := NULL;
        v_busy := false;
        FOR v_job IN
            SELECT j.seq, j.priority, j.due, j.expires_at, j.gates, j.costs FROM jobs j
             WHERE j.lane = v_lane AND j.ready = 2
             ORDER BY j.priority, j.due, j.seq LIMIT v_room
        LOOP
            EXIT WHEN v_bound.seq IS NOT NULL
                  AND (v_job.priority, v_job.due, v_job.seq)
                      > (v_bound.priority, v_bound.due, v_bound.seq);
            -- It may be under replacement, in a transaction of the user's that stays open.
            PERFORM 1 FROM jobs j
              WHERE j.seq = v_job.seq AND j.lane + 0 = v_lane FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                v_busy := true;
                v_gate := v_job.gates[1];
                v_cost := -2;
                v_opens_at := v_us + 100000;
                CONTINUE;
            END IF;
            IF v_job.expires_at <= p_now THEN
                -- More have expired than one claim discards.
                cut_short := true;
                EXIT;
            END IF;
            SELECT s.gate, s.cost, s.opens_at INTO v_shut
              FROM find_shut(v_job.gates, v_job.costs, v_us) AS s;
            IF v_shut.gate IS NOT NULL THEN
                -- The jobs before it count, if any.
                IF NOT v_busy THEN
                    v_gate := v_shut.gate;
                    v_cost := v_shut.cost;
                    v_opens_at := v_shut.opens_at;
                END IF;
                EXIT;
            END IF;
            UPDATE jobs SET state = 1, ready = NULL, lane = NULL, attempt = attempt + 1,
                            claim_number = claim_number + 1, started_at = p_now,
                            worker = p_worker, cancel_requested = false, progress = NULL,
                            progress_note = NULL
             WHERE seq = v_job.seq
            RETURNING claim_number INTO v_number;
            PERFORM charge_gates(v_job.gates, v_job.costs, v_job.seq, v_number, v_us);
            started := started || v_job.seq;
            charged := charged || v_job.gates;
            v_room := v_room - 1;
        END LOOP;
        PERFORM settle_lane(v_lane, v_gate, v_cost, v_opens_at);
        EXIT WHEN cut_short;
    END LOOP;
END $$;

-- The first solo job of a queue that its limits admit, among the first 64; a refused one closes its
-- lane behind it. Read-only. With p_discard the caller will discard those that have expired; without
-- it they count like others: a claim has to ask for them.
--   job       its seq; NULL: there is none
--   opens_at  when the first refused one may be admitted, microseconds since the epoch
--   expired   those met on the way that have expired
--   more      there are more than were looked at
CREATE OR REPLACE FUNCTION find_solo(
    p_queue text, p_now timestamptz, p_discard boolean,
    OUT job bigint, OUT opens_at bigint, OUT expired bigint[], OUT more boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    v_us bigint := us_of(p_now);
    v_job record;
    v_shut record;
    v_lane text[];
    v_closed text[] := '{}';
    v_looks integer := 0;
BEGIN
    expired := '{}';
    more := false;
    FOR v_job IN
        SELECT j.seq, j.expires_at, j.gates, j.costs FROM jobs j
         WHERE j.queue = p_queue AND j.ready = 3
         ORDER BY j.priority, j.due, j.seq LIMIT 65
    LOOP
        v_looks := v_looks + 1;
        IF v_looks > 64 THEN
            more := true;
            RETURN;
        END IF;
        IF p_discard AND v_job.expires_at <= p_now THEN
            expired := expired || v_job.seq;
            CONTINUE;
        END IF;
        v_lane := ARRAY(SELECT DISTINCT g FROM unnest(v_job.gates) g ORDER BY g);
        CONTINUE WHEN v_lane::text = ANY (v_closed);
        SELECT s.gate, s.opens_at INTO v_shut FROM find_shut(v_job.gates, v_job.costs, v_us) AS s;
        IF v_shut.gate IS NULL THEN
            job := v_job.seq;
            RETURN;
        END IF;
        v_closed := v_closed || v_lane::text;
        opens_at := least(opens_at, v_shut.opens_at);
    END LOOP;
END $$;
