-- Gauges of hosts and of the storage, by minute.

-- Minutes since 1970.
CREATE OR REPLACE FUNCTION gauge_minute(p_at timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT floor(extract(epoch FROM p_at) / 60)::bigint
$$;

-- Store what a worker has measured, in place of earlier values of this minute. Workers of one host
-- write the same rows: by source, so that two of them never wait for each other.
CREATE OR REPLACE FUNCTION keep_gauges(p_at timestamptz, p_gauges jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gauges (minute, source, readings)
    SELECT gauge_minute(p_at), g.key, g.value FROM jsonb_each(p_gauges) AS g ORDER BY g.key
    ON CONFLICT (minute, source) DO UPDATE SET readings = excluded.readings;
END $$;

-- `AdminStore.gauges`, of one source or (NULL) of all.
CREATE OR REPLACE FUNCTION read_gauges(p_since timestamptz, p_until timestamptz, p_source text)
RETURNS TABLE (minute timestamptz, source text, readings text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT to_timestamp(g.minute * 60), g.source, g.readings::text FROM gauges g
     WHERE g.minute >= ceil(extract(epoch FROM p_since) / 60)::bigint
       AND g.minute < ceil(extract(epoch FROM p_until) / 60)::bigint
       AND (p_source IS NULL OR g.source = p_source)
     ORDER BY g.minute, g.source;
END $$;

-- Gauges of two rows, added up.
CREATE OR REPLACE FUNCTION add_gauges(p_one jsonb, p_other jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_object_agg(s.key, jsonb_build_array(s.samples, s.total, s.peak))
      FROM (SELECT e.key, sum((e.value ->> 0)::bigint) AS samples,
                   sum((e.value ->> 1)::float8) AS total, max((e.value ->> 2)::float8) AS peak
              FROM (SELECT * FROM jsonb_each(p_one) UNION ALL SELECT * FROM jsonb_each(p_other)) e
             GROUP BY e.key) s
$$;

-- `MaintenanceStore.compact_gauges`.
CREATE OR REPLACE FUNCTION compact_gauges(p_at timestamptz, p_older bigint, p_limit integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_end bigint := gauge_minute(coalesce(p_at, clock_timestamp())
                                 - p_older * interval '1 microsecond');
    v_row record;
    v_saved integer := 0;
BEGIN
    FOR v_row IN
        WITH old AS MATERIALIZED (
            SELECT g.minute, g.source FROM gauges g
             WHERE g.minute % 60 <> 0 AND g.minute < v_end - v_end % 60
             ORDER BY g.minute LIMIT p_limit FOR UPDATE SKIP LOCKED)
        DELETE FROM gauges g USING old WHERE g.minute = old.minute AND g.source = old.source
        RETURNING g.minute - g.minute % 60 AS hour, g.source, g.readings
    LOOP
        UPDATE gauges g SET readings = add_gauges(g.readings, v_row.readings)
         WHERE g.minute = v_row.hour AND g.source = v_row.source;
        IF FOUND THEN
            v_saved := v_saved + 1;
        ELSE
            INSERT INTO gauges (minute, source, readings)
            VALUES (v_row.hour, v_row.source, v_row.readings)
            ON CONFLICT (minute, source)
            DO UPDATE SET readings = add_gauges(gauges.readings, excluded.readings);
        END IF;
    END LOOP;
    RETURN v_saved;
END $$;

-- `MaintenanceStore.prune_gauges`.
CREATE OR REPLACE FUNCTION prune_gauges(p_at timestamptz, p_older bigint, p_limit integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_before timestamptz := coalesce(p_at, clock_timestamp()) - p_older * interval '1 microsecond';
    v_count integer;
BEGIN
    WITH old AS MATERIALIZED (
        SELECT g.minute, g.source FROM gauges g
         WHERE g.minute < ceil(extract(epoch FROM v_before) / 60)::bigint
         ORDER BY g.minute LIMIT p_limit FOR UPDATE SKIP LOCKED)
    DELETE FROM gauges g USING old WHERE g.minute = old.minute AND g.source = old.source;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;
