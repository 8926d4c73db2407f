"""TensorFlow's private names: the files of this folder use them, and nothing else does."""

from rnnmem.tf.private.allocations import AllocationTrace
from rnnmem.tf.private.captures import (
    Readers,
    captured_inputs,
    forbid_calls,
    forget_trace,
    readers_of,
)
from rnnmem.tf.private.functions import (
    call,
    caller_of,
    concrete_function,
    flat_inputs,
    function_like,
    is_compiled,
    is_concrete,
    is_polymorphic,
    keras_step_cell,
    result_count,
    trace,
    traces,
)
from rnnmem.tf.private.gradients import (
    a_tape_is_active,
    differentiate_as,
    differentiated_caller,
    force_gradient,
    higher_gradients_are_possible,
    with_gradient,
)
from rnnmem.tf.private.graphs import (
    add_functions,
    copy_attribute,
    copy_call_time_captures,
    graph_of_function,
    names_in_use,
    new_func_graph,
    run_loops_in_turn,
)
from rnnmem.tf.private.halves import Halves
from rnnmem.tf.private.lines import written_at
from rnnmem.tf.private.marking import mark
from rnnmem.tf.private.optimized import (
    function_definition,
    optimized_body,
    optimized_copy,
    optimized_graph,
    optimized_nodes,
)
from rnnmem.tf.private.runtime import (
    eager_context_is_initialized,
    execute,
    executor_scope,
    has_onednn,
    is_deterministic,
    memory_limit,
    memory_limits,
    new_executor,
    op_def,
    retire,
    wait_for_queued_ops,
    worker_addresses,
)
from rnnmem.tf.private.variables import (
    copy_handle_data,
    handle_dtype,
    handle_shape,
    is_distributed,
    is_graph_variable,
    is_resource_variable,
    move_keras_variable,
    new_handle,
    put_back,
    set_handle,
)
from rnnmem.tf.private.vectorisation import let_pfor_look_inside, vectorise_as
