-- The settings of every function, by one loop over those that this transaction has made: a schema
-- may hold functions of other owners too. Lock timeouts differ and are set where a function is made.
--
-- The search path is ours, not the caller's. A plan is kept by the session that made it, also one
-- made while the tables were empty, and must be right for millions of rows: by index, row by row.
--
-- A function that is not named below gets the search path, a generic plan, and neither sequential
-- nor bitmap scans.
DO $$
DECLARE
    -- No settings at all: setting them takes time. These are called for every job or limit, and
    -- only by functions that have all of them.
    v_bare constant text[] := '{
        add_gauges, add_rollup, add_rollups, admit_jobs, advance_lanes, after, answer_successes,
        ask_bucket, bucket_bottoms, charge_gates, claim_locks, commit_durably, copied_from, count_coalesced,
        count_members, counted_names, decide_part, end_flow, end_members, end_members_now,
        end_successes_now, extras_of,
        find_lanes, find_shut, finishing_verbs, forget_traces, forgiven_before,
        gate_usage, gauge_minute, has_due_parts, has_tag, hasten, in_rank_order, is_flow_stored,
        is_part_due, is_set_back, is_wanted, jobs_of_request, join_parts, judge_jobs, keep_gauges,
        lanes_for, limits_held, limits_in, limits_of, limits_of_claims, limits_of_jobs,
        limits_of_waiting,
        lock_space, make_lanes, mark_charged, may_forgive, meet_key, members_cancelled,
        mend_gates, mentions, names_in, next_in_lanes, note_lane_limits, note_members,
        open_next, order_for_member, order_matters, order_one, part_place, part_rank, place_blocked,
        read_gates, read_limits, reckon_from, refuse_other_calls, replace_waiting, requeue_one, require_limits,
        require_read_committed, room_in, serve_lanes, set_back_by, settle_bays,
        settle_lanes, span_of, span_us, spread_parts, start_limited, stop_reason,
        store_flows, store_parts, tell_others, tell_parts, us_of}';
    -- The search path alone: they call other functions, or write rows by key.
    v_path_only constant text[] := '{
        bury, count_all, expire_waiting, insert_for_user, insert_keyed_jobs, insert_listed,
        insert_ordered, insert_plain_job, insert_together, keep_audit, lock_all_limits, lock_cool_downs,
        lock_limits, pause, prune_rollups, restore_audits, restore_flows, restore_gates,
        restore_queues, restore_rollups, start_for_user, store_sum, sweep_holds,
        write_schedules}';
    -- The plan is the session's choice.
    v_any_plan constant text[] := '{
        answered_before, assign_duty, beat, cancel_requests, change_queue, ended_for_user,
        finish_for_user, leave_worker, next_due, orphans, prune_audits, prune_events,
        prune_workers, warm_queue}';
    -- Bitmap scans are allowed: small tables.
    v_bitmaps constant text[] := '{
        assign_duty, breaker_states, change_queue, limit_states, open_limit, orphans, read_rollups,
        warm_queue}';
    -- They join tables: row by row, without hashes or merges.
    v_joins constant text[] := '{
        act_on_flows, append_events, append_logs, apply_successes, apply_transitions,
        breaker_states, cancel_jobs, claim_jobs, count_queue, delete_successes,
        end_and_claim, end_waiting, forget_gates, free_keys, gather_waiting, give_back,
        insert_alike_jobs, insert_jobs, insert_limited_jobs, insert_plain_jobs,
        is_claimable, limit_states, list_jobs, meet_holders, next_in_list, order_jobs,
        outlook, place_waiting, postpone_bays, prune_flows, put_schedules, read_events,
        read_flows, read_logs, recount, repair_flows, report_progress, restore_events,
        restore_jobs, restore_traces, settle_flows, stored_before}';
    -- They read in the order of an index, without sorting.
    v_in_order constant text[] := '{
        count_queue, due_schedules, dump_jobs, ended_heads, error_groups, gather_ended,
        gather_waiting, list_audits, next_ended, oldest_due, prune, queues_with_jobs, read_events}';
    v_function record;
    v_settings text;
BEGIN
    FOR v_function IN
        SELECT p.oid::regprocedure AS signature, p.proname::text AS name FROM pg_proc p
         WHERE p.pronamespace = to_regnamespace(quote_ident(current_schema))
           AND p.xmin = pg_current_xact_id()::xid AND p.proname <> ALL (v_bare)
    LOOP
        v_settings := ' SET search_path FROM CURRENT';
        IF v_function.name <> ALL (v_path_only) THEN
            v_settings := concat(v_settings, ' SET enable_seqscan = off',
                CASE WHEN v_function.name <> ALL (v_any_plan)
                     THEN ' SET plan_cache_mode = force_generic_plan' END,
                CASE WHEN v_function.name <> ALL (v_bitmaps)
                     THEN ' SET enable_bitmapscan = off' END,
                CASE WHEN v_function.name = ANY (v_joins)
                     THEN ' SET enable_hashjoin = off SET enable_mergejoin = off' END,
                CASE WHEN v_function.name = ANY (v_in_order)
                     THEN ' SET enable_sort = off' END);
        END IF;
        EXECUTE concat('ALTER FUNCTION ', v_function.signature, v_settings);
    END LOOP;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no function was made in this transaction: make and set them in one';
    END IF;
END $$;
