-- ActionStore.record.
-- use: audits
-- ARGV: note, how many it took effect on
audits.keep(ARGV[1], tonumber(ARGV[2]))
return 1
