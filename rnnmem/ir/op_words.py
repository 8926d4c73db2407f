"""The words in which `rnnmem.ir.op_types` says what is true of an op type."""

WORDS = {
    # May it run twice?
    "rerun": "depends on its inputs alone and may run twice",
    "pure": "may go where nobody reads it, but runs twice only inside of a whole step net",
    "ours": "no type of TensorFlow's",
    # Its work; a number is the arithmetic per element, relative to one addition.
    "none": "a view of its input, or a few numbers",
    "moves": "copies its output",
    "reads": "passes over its inputs",
    "pointwise": "computes each element of its output",
    "product": "multiplies; a number: in so many times the time of a product of matrices",
    "solves": "factors matrices, or solves for them: its work grows with their last axis as well",
    "each": "takes, writes over or adds up rows one by one, as indices tell: the arithmetic of"
    " each, however short it is",
    "indices": "the input that tells which rows these are, by a number each",
    "index_vectors": "the same, by a vector of numbers each",
    "exponent": "the input of whose constants a graph optimizer makes roots and products",
    "wakes": "hands its work to other threads, however little that is, once or so many times",
    "complex": "reads complex numbers, as its work has it",
    "starts": "runs as a primitive of oneDNN where that is on, which takes long to start",
    # Buffers.
    "patches": "where TensorFlow's own kernel runs it, lays out what its filter sees in a buffer",
    "view": "its result may be its input's buffer: with the same numbers, of another dtype, in an"
    " optional or out of it, an item of a list, each of its inputs, or with some rows written over",
    "slices": "the input of whose buffer its results may be parts",
    "skips": "hands on its input where the result has its size",
    "in_place": "inputs whose buffer its result may take, where not all of a pointwise op's",
    "finishes": "makes its result of a product's in the buffer of that, if nobody else reads it",
    "takes": "may take its input's buffer, and no graph optimizer fuses it",
    "host": "writes into host memory whatever the device",
    "resident": "hands out memory that is there anyway",
    # What it does with values.
    "adds": "adds values up",
    "commutes": "TensorFlow takes its inputs in any order for equal ones",
    "unit": "the number which, as its second input, gives the first one; where it commutes, as"
    " either",
    "divides": "divides; sizes divide without rest",
    "compares": "asks which of two numbers is larger: the name of the operator that asks it",
    "whole": "its value for whole numbers: two of them, or those of a vector",
    "matmul": "multiplies matrices",
    "sums_products": "adds up products along axes that an attribute names, of two inputs as a"
    " product of matrices does",
    "implicit": "broadcasts an operand by itself and rounds each element as it would be without",
    "reduces": "makes one number of those along some axes",
    "softmax": "makes probabilities of logits",
    "cross_entropy": "makes losses of logits and labels",
    "labelled": "takes a label, or as many, for each row of its first input, as its second;"
    " or those of one row for all",
    "alike": "fails where its inputs, but for single numbers, have not as many rows each",
    "repeats": "repeats its first input along some axes",
    "fills": "makes equal numbers",
    "reorders": "hands on the numbers it reads, in another order",
    "rows": "has the rows of its first input",
    "asks_shape": "reads nothing of a blob but its shape",
    "own_shape": "its shape is not its inputs', broadcast to each other",
    "sized": "the input that says how large its result is",
    "windows": "the input that it puts between zeros",
    "counted": "how many rows its results have its values decide: at most as many as this input has"
    " elements, where labels leave no number out",
    "sign": "the input of which it only asks, of each element, whether it is above 0",
    "bits": "gives the bits of all rows where it is run on 64 of them at a time: always, or"
    " where a row is a multiple of 16 numbers",
    "tokens": "how it works on tokens that several axes count, where other words do not tell: on"
    " each number, along other axes, on a row, by a label of each, or as its sizes say",
    # Lists and optionals.
    "list": "what it does with a list or an optional",
    "variant": "what it does with a list where it is given one",
    "puts": "the input that it puts into a list or an optional, which holds it from then on",
    # What TensorFlow's graph optimizer does with it.
    "folds": "it looks through the op into its readers: a rematerialised reader must find it"
    " rematerialised too, or it might be fused otherwise than before",
    "apart": "it fuses the op neither with what it reads nor with what reads it",
    "joined": "oneDNN computes it as one op with another of these that reads the same gradient: the"
    " input that is the gradient, 0 of a bias's",
    "calm": "it fuses no matrix product with the op",
    "splits": "it merges nothing into the op",
    "hides": "it sees nothing of what stands before the op",
    # What a run leaves behind.
    "effect": "what a run of a stateful op leaves behind",
    "python": "runs Python",
    "row_access": "each whole read of its variable is a copy from then on",
    # Step nets.
    "runs": "what its step nets are to it",
    "nets": "the attributes that hold them",
    "quiet": "a drawing leaves it out",
}
"""Word -> what it says of a type."""
