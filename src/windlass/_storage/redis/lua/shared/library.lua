-- Behind the shared parts of a library: how a script becomes one of its functions. Not for EVAL.

local function register(library, name, flags, run)
  redis.register_function({
    function_name = library .. '_' .. name,
    flags = flags,
    callback = function(keys, arguments)
      return begin(keys, arguments) or run(arguments)
    end,
  })
end
