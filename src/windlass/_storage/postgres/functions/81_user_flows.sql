-- Flows started on a connection of the user's own, in the user's own transaction: see
-- 80_transactions.sql. All rows are new, so other transactions wait for nothing but a flow's key.

-- `UserInsertStore.start`. The answer: the flow's id, whether it was created, whether it was stored
-- before.
--   flows, parts   as `store_flows` and `store_parts` read them, of one flow
--   places         of each job's part, from 1
--   spreads        parts without jobs have ended, or jobs are to be skipped, from the start
CREATE OR REPLACE FUNCTION start_for_user(p_request text) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    v_request json := p_request::json;
    v_now timestamptz := coalesce((v_request ->> 'at')::timestamptz, clock_timestamp());
    v_channel text := v_request ->> 'channel';
    v_places integer[];
    v_ids uuid[];
    v_members bigint[];
    v_flows record;
    v_parts record;
BEGIN
    SELECT s.* INTO v_flows FROM store_flows(v_request -> 'flows', v_now) AS s;
    IF v_flows.numbers[1] > 0 THEN
        SELECT s.* INTO v_parts
          FROM store_parts(v_request -> 'parts', v_flows.numbers, v_flows.ids) AS s;
        SELECT array_agg(t.place::integer ORDER BY t.n),
               array_agg(v_parts.ids[t.place::integer] ORDER BY t.n)
          INTO v_places, v_members
          FROM json_array_elements_text(v_request -> 'places') WITH ORDINALITY AS t (place, n);
        v_ids := ARRAY(SELECT (t.job ->> 'id')::uuid
                         FROM json_array_elements(v_request -> 'jobs') WITH ORDINALITY AS t (job, n)
                        ORDER BY t.n);
        -- Limited jobs stay "later", due now: the next claim puts them into their lanes.
        PERFORM insert_listed(
            v_now, NULL, v_request -> 'jobs', p_parts => v_members,
            p_blocked => ARRAY(SELECT v_parts.blocked[t.place]
                                 FROM unnest(v_places) WITH ORDINALITY AS t (place, n)
                                ORDER BY t.n));
        IF cardinality(v_ids) <> (SELECT count(DISTINCT j.id)
                                    FROM unnest(v_ids, v_members) AS t (id, part)
                                    JOIN jobs j ON j.id = t.id AND j.part = t.part) THEN
            PERFORM refuse_stored(v_ids, v_members);
        END IF;
        IF (v_request ->> 'spreads')::boolean THEN
            PERFORM spread_parts(
                v_flows.numbers[1],
                ARRAY(SELECT p.number FROM parts p WHERE p.flow = v_flows.numbers[1]), v_now);
            PERFORM settle_part(p.id, 1000000, v_now) FROM parts p
              WHERE p.flow = v_flows.numbers[1] AND p.after = '{}' AND p.due;
        END IF;
        IF v_channel IS NOT NULL THEN
            PERFORM pg_notify(v_channel, '');
        END IF;
    END IF;
    RETURN json_build_array(
        encode(uuid_send(v_flows.ids[1]), 'hex'), v_flows.numbers[1] > 0 OR v_flows.repeated[1],
        v_flows.repeated[1])::text;
END $$;
