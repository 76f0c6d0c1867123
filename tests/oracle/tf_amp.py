# SPDX-License-Identifier: MIT
"""What TensorFlow's own pass auto_mixed_precision does to a set of graphs, as cases for policy_test.

    tf_amp.py --out DIR                 write DIR/*.pb and DIR/cases.json (tests/policy/files/tf_amp)
    tf_amp.py --out DIR --random 200    the same for random graphs instead
    tf_amp.py --program policy_test     write both kinds to a scratch folder and run the test

The official builds for Linux contain GPU kernels, so they paint for a GPU on machines without one
(TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_SIMULATE_GPU). Each setting of the environment needs its own
process, because TensorFlow reads some variables once.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

PREFIX = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
OPTIMIZERS = {"cuda_float16": "auto_mixed_precision",
              "cpu_bfloat16": "auto_mixed_precision_onednn_bfloat16"}


# ---- the graphs -------------------------------------------------------------------------------
def build_graphs():
    """Returns {name: (graph, fetches)}; each graph is on the default device."""
    import numpy as np
    import tensorflow as tf
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    made = {}

    def graph(build):
        g = tf.Graph()
        with g.as_default():
            v1.set_random_seed(1)
            fetches = build()
        made[build.__name__] = (g, [f.name for f in fetches])
        return build

    def weight(name, shape, resource=True):
        return v1.get_variable(name, initializer=np.zeros(shape, np.float32), use_resource=resource)

    def train(loss):
        grads = v1.gradients(loss, v1.trainable_variables())
        steps = [v1.assign_sub(v, 0.1 * g) for v, g in zip(v1.trainable_variables(), grads)
                 if g is not None]
        return [v1.group(*steps, name="step")] + [loss]

    def conv(x, name, co, stride=1, resource=True):
        w = weight(name, [3, 3, int(x.shape[-1]), co], resource)
        return tf.nn.conv2d(x, w, stride, "SAME", name=name + "_conv")

    def norm(x, name, training=True):
        c = int(x.shape[-1])
        y, _, _ = v1.nn.fused_batch_norm(x, weight(name + "_g", [c]), weight(name + "_b", [c]),
                                         None if training else weight(name + "_m", [c]),
                                         None if training else weight(name + "_v", [c]),
                                         is_training=training, name=name)
        return y

    def dense(x, name, co):
        w = weight(name + "_w", [int(x.shape[-1]), co])
        return tf.nn.bias_add(tf.matmul(x, w, name=name + "_mm"), weight(name + "_b", [co]),
                              name=name + "_bias")

    def layer_norm(x, name):
        m = tf.reduce_mean(x, -1, keepdims=True)
        v = tf.reduce_mean(tf.math.squared_difference(x, m), -1, keepdims=True)
        c = int(x.shape[-1])
        return (x - m) * tf.math.rsqrt(v + 1e-5) * weight(name + "_g", [c]) + weight(name + "_b", [c])

    @graph
    def mlp_forward():
        x = v1.placeholder(tf.float32, [4, 8], "x")
        return [tf.identity(dense(tf.nn.relu(dense(x, "a", 8)), "b", 4), "out")]

    @graph
    def mlp_training():
        x = v1.placeholder(tf.float32, [4, 8], "x")
        t = v1.placeholder(tf.int32, [4], "t")
        y = dense(tf.nn.tanh(dense(tf.nn.relu(dense(x, "a", 8)), "b", 8)), "c", 4)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(t, y))
        return train(loss + 0.01 * tf.nn.l2_loss(v1.trainable_variables()[0]))

    @graph
    def mlp_loss_scaled():
        x = v1.placeholder(tf.float32, [4, 8], "x")
        y = dense(tf.nn.relu(dense(x, "a", 8)), "b", 4)
        loss = tf.reduce_mean(tf.math.squared_difference(y, 0.5))
        scale = v1.get_variable("scale", initializer=np.float32(1024), trainable=False, use_resource=True)
        variables = v1.trainable_variables()
        grads = [g * tf.math.reciprocal(scale.read_value()) for g in v1.gradients(loss * scale, variables)]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in grads])
        return [v1.group(*[v1.assign_sub(v, 0.1 * g) for v, g in zip(variables, grads)], name="step"),
                tf.identity(finite, "finite")]

    @graph
    def cnn_batch_norm():
        x = v1.placeholder(tf.float32, [2, 8, 8, 3], "x")
        t = v1.placeholder(tf.int32, [2], "t")
        y = tf.nn.max_pool2d(tf.nn.relu(norm(conv(x, "c1", 8), "n1")), 2, 2, "SAME")
        y = tf.nn.avg_pool2d(tf.nn.relu6(norm(conv(y, "c2", 8, 1, False), "n2")), 2, 2, "SAME")
        y = dense(tf.reshape(y, [2, 32]), "fc", 4)
        return train(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(t, y)))

    @graph
    def resnet_block():
        x = v1.placeholder(tf.float32, [2, 8, 8, 4], "x")
        t = v1.placeholder(tf.float32, [2, 4], "t")
        y = tf.nn.relu(norm(conv(x, "c1", 4), "n1"))
        y = tf.nn.relu(norm(conv(y, "c2", 4), "n2") + x)
        y = dense(tf.reduce_mean(y, [1, 2]), "fc", 4)
        return train(tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(t, y)))

    @graph
    def resnet_block_inference():
        x = v1.placeholder(tf.float32, [2, 8, 8, 4], "x")
        y = tf.nn.relu(norm(conv(x, "c1", 4), "n1", False))
        y = tf.nn.relu(norm(conv(y, "c2", 4), "n2", False) + x)
        return [tf.nn.softmax(dense(tf.reduce_mean(y, [1, 2]), "fc", 4), name="out")]

    @graph
    def transformer():
        x = v1.placeholder(tf.float32, [2, 6, 8], "x")
        t = v1.placeholder(tf.int32, [2, 6], "t")
        h = layer_norm(x, "ln1")
        q, k, v = (tf.einsum("btd,de->bte", h, weight(n, [8, 8])) for n in "qkv")
        a = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.35 - 1e4 * tf.constant(np.triu(np.ones([6, 6], np.float32), 1)))
        x = x + tf.einsum("btd,de->bte", tf.matmul(a, v), weight("o", [8, 8]))
        h = layer_norm(x, "ln2")
        u = tf.einsum("btd,de->bte", h, weight("f1", [8, 16]))
        u = 0.5 * u * (1.0 + tf.math.erf(u * 0.7071))
        x = x + tf.einsum("btd,de->bte", u, weight("f2", [16, 8]))
        y = tf.einsum("btd,dv->btv", x, weight("vocab", [8, 10]))
        return train(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(t, y)))

    def cell(x, state, w, b):
        z = tf.nn.bias_add(tf.matmul(tf.concat([x, state[0]], 1), w), b)
        i, j, f, o = tf.split(z, 4, 1)
        c = state[1] * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        return tf.tanh(c) * tf.sigmoid(o), c

    def lstm(resource_loop):
        def build():
            x = v1.placeholder(tf.float32, [5, 2, 4], "x")
            w, b = weight("w", [8, 16]), weight("b", [16])
            xs = tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[2, 4])
            ys = tf.raw_ops.TensorListReserve(element_shape=[2, 4], num_elements=5,
                                              element_dtype=tf.float32)
            zero = tf.zeros([2, 4])

            def body(i, h, c, ys):
                xi = tf.raw_ops.TensorListGetItem(input_handle=xs, index=i, element_shape=[2, 4],
                                                  element_dtype=tf.float32)
                h, c = cell(xi, (h, c), w, b)
                return i + 1, h, c, tf.raw_ops.TensorListSetItem(input_handle=ys, index=i, item=h)

            _, h, _, ys = v1.while_loop(lambda i, *_: i < 5, body, [tf.constant(0), zero, zero, ys])
            out = tf.raw_ops.TensorListStack(input_handle=ys, element_shape=[2, 4],
                                             element_dtype=tf.float32)
            v = weight("v", [4, 3])
            y = tf.matmul(tf.reshape(out, [10, 4]), v)
            return [tf.identity(y, "out"), tf.identity(h, "last")]
        return build

    v1.disable_control_flow_v2()
    lstm_tensor_lists = lstm(False)
    lstm_tensor_lists.__name__ = "lstm_tensor_lists"
    graph(lstm_tensor_lists)

    @graph
    def while_training():
        x = v1.placeholder(tf.float32, [4, 8], "x")
        w = weight("w", [8, 8], resource=False)
        _, y = v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.nn.relu(tf.matmul(y, w))),
                             [tf.constant(0), x])
        return train(tf.reduce_sum(y * y))

    @graph
    def tensor_list_to_function():
        x = v1.placeholder(tf.float32, [4, 8], "x")
        w = weight("w", [8, 8])
        y = tf.matmul(x, w)
        handle = tf.raw_ops.TensorListFromTensor(tensor=y, element_shape=[8])
        option = tf.raw_ops.OptionalFromValue(components=[handle])
        z = tf.raw_ops.TensorListStack(input_handle=handle, element_shape=[8], element_dtype=tf.float32)
        return [tf.identity(tf.matmul(z, w), "out"), tf.identity(option, "option")]

    @graph
    def gan_block():
        z = v1.placeholder(tf.float32, [2, 8], "z")
        real = v1.placeholder(tf.float32, [2, 8, 8, 3], "real")
        h = tf.reshape(dense(z, "g1", 64), [2, 4, 4, 4])
        h = tf.nn.leaky_relu(norm(h, "gn"))
        h = tf.nn.conv2d_transpose(h, weight("gt", [4, 4, 3, 4]), [2, 8, 8, 3], 2, "SAME")
        fake = tf.tanh(h)

        def critic(x, reuse):
            with v1.variable_scope("d", reuse=reuse):
                y = tf.nn.leaky_relu(conv(x, "c1", 4, 2))
                return dense(tf.reshape(y, [2, 64]), "fc", 1)
        a, b = critic(real, False), critic(fake, True)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones_like(a), logits=a))
        loss += tf.reduce_mean(tf.nn.softplus(b))
        return train(loss)

    @graph
    def detection_head():
        x = v1.placeholder(tf.float32, [1, 8, 8, 4], "x")
        up = tf.raw_ops.ResizeNearestNeighbor(images=conv(x, "lateral", 4), size=[16, 16])
        y = tf.nn.relu(conv(up, "c", 4))
        d = tf.nn.depthwise_conv2d(y, weight("dw", [3, 3, 4, 1]), [1, 1, 1, 1], "SAME")
        scores = tf.sigmoid(tf.reshape(conv(d, "cls", 3), [-1, 3]))
        boxes = tf.reshape(conv(tf.nn.swish(d), "box", 4), [-1, 4])
        size = tf.exp(boxes[:, 2:])
        corners = tf.concat([boxes[:, :2] - size * 0.5, boxes[:, :2] + size * 0.5], 1)
        best, at = tf.nn.top_k(tf.reduce_max(scores, 1), 5)
        chosen = tf.gather(corners, at)
        return [tf.identity(best, "best"), tf.identity(chosen, "chosen")]

    @graph
    def existing_casts():
        x = v1.placeholder(tf.uint8, [2, 8, 8, 3], "x")
        y = conv(tf.cast(x, tf.float32), "c1", 4)
        z = tf.cast(tf.cast(tf.nn.relu(y), tf.float64), tf.float32)
        return [tf.identity(conv(z, "c2", 4), "out"), tf.identity(tf.cast(y, tf.float16), "half")]

    @graph
    def old_batch_norm():
        x = v1.placeholder(tf.float32, [2, 4, 4, 4], "x")
        y = tf.raw_ops.FusedBatchNorm(x=conv(x, "c1", 4), scale=weight("s", [4]), offset=weight("o", [4]),
                                      mean=[], variance=[])
        return [tf.identity(conv(tf.nn.relu(y.y), "c2", 4), "out"), tf.identity(y.batch_mean, "mean")]

    @graph
    def no_allow_ops():
        x = v1.placeholder(tf.float32, [2, 4], "x")
        return [tf.identity(tf.nn.relu(x) + 1.0, "out")]

    @graph
    def other_devices():
        x = v1.placeholder(tf.float32, [4, 8], "x")
        with v1.device("/CPU:0"):
            y = tf.nn.relu(dense(x, "a", 8))
        with v1.device("/job:localhost/replica:0/task:0/device:GPU:0"):
            z = dense(y, "b", 8)
        with v1.device("/GPU:0"):
            u = tf.nn.relu(dense(z, "c", 8))
        with v1.device("/job:localhost"):
            v = tf.nn.relu(tf.matmul(u, u, transpose_b=True))
        return [tf.identity(tf.matmul(v, v), "out")]
    return made


def random_graph(seed):
    """A random graph of operators on every list and on none, of one shape [4, 4]."""
    import numpy as np
    import tensorflow as tf
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    rng = random.Random(seed)
    g = tf.Graph()
    with g.as_default():
        values = [v1.placeholder(tf.float32, [4, 4], "x")]
        for i in range(2):
            values.append(v1.get_variable(f"v{i}", initializer=np.zeros([4, 4], np.float32),
                                          use_resource=bool(i)).read_value())
        values.append(tf.constant(np.ones([4, 4], np.float32)))
        r = tf.raw_ops
        one = [tf.nn.relu, tf.tanh, tf.sigmoid, tf.exp, tf.sqrt, tf.math.log, tf.identity, tf.abs,
               tf.nn.softmax, tf.math.rsqrt, tf.math.sin, tf.square, tf.transpose, tf.stop_gradient,
               tf.nn.softplus, tf.math.erf, tf.nn.elu, tf.math.expm1, tf.math.softsign,
               lambda x: tf.reshape(x, [4, 4]), lambda x: tf.cast(tf.cast(x, tf.int32), tf.float32),
               lambda x: tf.cast(tf.cast(x, tf.float64), tf.float32), tf.linalg.inv,
               lambda x: tf.broadcast_to(tf.reduce_mean(x, 0), [4, 4]), tf.math.cumsum,
               lambda x: tf.tile(tf.reduce_max(x, 0, keepdims=True), [4, 1]),
               lambda x: r.BiasAdd(value=x, bias=[1., 2., 3., 4.]), tf.round, tf.math.lgamma,
               lambda x: tf.concat(tf.split(x, 2, 0)[::-1], 0), lambda x: tf.pad(x[1:, :], [[1, 0], [0, 0]]),
               lambda x: tf.where(x > 0.5, x, x), lambda x: tf.debugging.check_numerics(x, "bad"),
               lambda x: tf.gather(x, [0, 1, 2, 3]), lambda x: tf.clip_by_value(x, 0., 1.),
               lambda x: r.Snapshot(input=x), lambda x: tf.reverse(x, [0]), lambda x: tf.math.top_k(x, 4)[0],
               lambda x: r.TensorListStack(input_handle=r.TensorListFromTensor(tensor=x, element_shape=[4]),
                                           element_shape=[4], element_dtype=tf.float32),
               lambda x: tf.reshape(r.FusedBatchNormV3(x=tf.reshape(x, [1, 2, 2, 4]), scale=x[0], offset=x[1],
                                                       mean=[], variance=[]).y, [4, 4]),
               lambda x: tf.reshape(tf.nn.conv2d(tf.reshape(x, [1, 4, 4, 1]), np.ones([3, 3, 1, 1], np.float32), 1, "SAME"), [4, 4])]
        two = [tf.matmul, tf.matmul, tf.matmul, tf.add, tf.multiply, tf.subtract, tf.divide, tf.pow, tf.maximum,
               tf.math.floordiv, tf.math.atan2, lambda a, b: tf.einsum("ij,jk->ik", a, b),
               lambda a, b: tf.add_n([a, b, a]), lambda a, b: r.IdentityN(input=[a, b])[1],
               lambda a, b: tf.math.squared_difference(a, b), lambda a, b: tf.stack([a, b])[0],
               lambda a, b: r.ReluGrad(gradients=a, features=b), lambda a, b: r.TanhGrad(y=a, dy=b)]
        for _ in range(rng.randint(6, 40)):
            recent = values[-8:]
            if rng.random() < 0.55:
                values.append(rng.choice(one)(rng.choice(recent)))
            else:
                values.append(rng.choice(two)(rng.choice(recent), rng.choice(recent)))
        fetches = [values[-1]]
        if rng.random() < 0.5:
            fetches.append(tf.identity(rng.choice(values), "also"))
    return g, [f.name for f in fetches]


# ---- what TensorFlow does ---------------------------------------------------------------------
def paint(graph, fetches, mode):
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.framework import graph_util
    from tensorflow.python.grappler import tf_optimizer
    v1 = tf.compat.v1
    names = [f.split(":")[0] for f in fetches]
    # The optimizer's item drops what no fetch needs; our side sees the same graph.
    small = graph_util.extract_sub_graph(graph.as_graph_def(add_shapes=False), names)
    g = tf.Graph()
    with g.as_default():
        tf.import_graph_def(small, name="")
        for fetch in fetches:
            g.add_to_collection("train_op", g.as_graph_element(fetch))
        meta = v1.train.export_meta_graph(graph=g, clear_extraneous_savers=True)
    before = meta.graph_def
    config = config_pb2.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.meta_optimizer_iterations = rewrites.ONE
    rewrites.min_graph_nodes = -1
    rewrites.fail_on_optimizer_errors = True
    rewrites.optimizers.append(OPTIMIZERS[mode])
    error = None
    try:
        after = tf_optimizer.OptimizeGraph(config, meta, verbose=False, strip_default_attributes=False)
    except Exception as failure:  # the pass itself failed
        error, after = str(failure).split("\n")[0], before
    lean = graph_pb2.GraphDef()
    lean.CopyFrom(before)
    for node in lean.node:
        for key in [k for k in node.attr if k.startswith("_") and k != "_grappler_do_not_remove"]:
            del node.attr[key]
        for key, value in node.attr.items():
            if value.HasField("tensor"):
                value.tensor.Clear()
            if value.HasField("shape") or value.list.shape:
                value.Clear()
    result = compare(before, after)
    feeds = [n.name for n in before.node if n.op in ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")]
    result["preserve"] = sorted(set(names + feeds))
    if error:
        result["error"] = error
    return lean, result


def types_of(node):
    types = {}
    for key, value in node.attr.items():
        if value.type:
            types[key] = value.type
        for i, t in enumerate(value.list.type):
            types[f"{key}[{i}]"] = t
    return types


def compare(before, after):
    old = {n.name: n for n in before.node}
    new = {n.name: n for n in after.node}
    missing = set(old) - set(new)
    assert not missing, missing
    changed, casts, renamed = [], {}, []
    for name, node in old.items():
        a, b = types_of(node), types_of(new[name])
        if node.op != new[name].op:  # V2 of a batch norm has a new attribute, float32 at first
            a.setdefault("U", 1)
        changed += sorted(f"{name}:{key}" for key in a if a[key] != b[key])
        if node.op != new[name].op:
            renamed.append(name)
    for node in after.node:
        if node.name not in old:
            assert node.op == "Cast", node
            source = node.input[0]
            casts[node.name] = {"source": source if ":" in source else source + ":0", "readers": [],
                                "to_f16": node.attr["SrcT"].type == 1}
    for node in after.node:
        for port, source in enumerate(node.input):
            if source in casts:
                casts[source]["readers"].append(f"{node.name}:{port}")
    for cast in casts.values():
        cast["readers"].sort()
    return {"changed": changed, "casts": casts, "renamed": renamed, "nodes": len(old)}


def run_cases(jobs, out):
    """Paints all jobs of one setting of the environment; runs in a process of its own."""
    graphs = {}
    for job in jobs:
        if job["graph"] not in graphs:
            seed = re.fullmatch(r"random_(\d+)", job["graph"])
            if seed:
                graphs[job["graph"]] = random_graph(int(seed.group(1)))
            else:
                graphs.update(build_graphs())
    results = []
    for job in jobs:
        # A marker before each: the log of the pass goes to stderr.
        sys.stderr.write(f"\n@@ {job['name']}\n")
        sys.stderr.flush()
        lean, result = paint(*graphs[job["graph"]], job["mode"])
        (out / (job["graph"] + ".pb")).write_bytes(lean.SerializeToString(deterministic=True))
        results.append({**job, **result})
    (out / "part.json").write_text(json.dumps(results))


def settings():
    """The settings of the environment that are tried on several graphs."""
    def edit(**edits):
        return {PREFIX + k: v for k, v in edits.items()}
    return {
        "plain": {},
        "tensor_cores_only": edit(LEVEL="tensor_cores_only"),
        "force_all": edit(LEVEL="UNSAFE_FORCE_ALL"),
        "infer_as_deny": edit(LEVEL="TREAT_INFER_AS_DENY"),
        "deny_relu": edit(DENYLIST_ADD="Relu,Tanh", CLEARLIST_REMOVE="Relu", INFERLIST_REMOVE="Tanh"),
        "old_names": edit(BLACKLIST_REMOVE="Mean,Sum", GRAYLIST_ADD="Mean,Sum", WHITELIST_REMOVE="Einsum"),
        "infer_more": edit(INFERLIST_ADD="Rsqrt,SquaredDifference,Exp", DENYLIST_REMOVE="Exp"),
        "conflict": edit(INFERLIST_ADD="Exp"),
    }


def jobs_for(graphs, modes, chosen):
    jobs = []
    for mode in modes:
        for name, env in settings().items():
            if name not in chosen or (name == "force_all" and mode != "cuda_float16"):
                continue
            if name == "infer_more" and mode != "cuda_float16":
                continue
            group = [{"name": f"{g}/{mode}/{name}", "graph": g, "mode": mode, "env": env} for g in graphs]
            jobs.append((mode, env, group))
    return jobs


NETWORKS = ["mlp_forward", "mlp_training", "mlp_loss_scaled", "cnn_batch_norm", "resnet_block", "resnet_block_inference",
            "transformer", "lstm_tensor_lists", "while_training", "tensor_list_to_function", "gan_block",
            "detection_head", "existing_casts", "old_batch_norm", "no_allow_ops", "other_devices"]


def produce(out, graphs, chosen):
    out.mkdir(parents=True, exist_ok=True)
    cases = []
    for mode, env, group in jobs_for(graphs, ["cuda_float16", "cpu_bfloat16"], chosen):
        environment = {**os.environ, **env, "TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop(PREFIX + "SIMULATE_GPU", None)
        if mode == "cuda_float16":
            environment[PREFIX + "SIMULATE_GPU"] = "1"
        (out / "jobs.json").write_text(json.dumps(group))
        run = subprocess.run([sys.executable, __file__, "--out", str(out), "--jobs"], env=environment,
                             capture_output=True, text=True)
        if run.returncode != 0:
            raise SystemExit(run.stderr[-3000:])
        logs = {}
        for piece in run.stderr.split("\n@@ ")[1:]:
            found = re.search(r"Converted \d+/\d+ nodes to .*|No allowlist ops found, nothing to do", piece)
            logs[piece.split("\n")[0]] = found.group(0) if found else ""
        for case in json.loads((out / "part.json").read_text()):
            cases.append({**case, "log": logs[case["name"]]})
        print(f"{mode} {env or ''}: {len(group)} graphs", file=sys.stderr)
    for scratch in ("jobs.json", "part.json"):
        (out / scratch).unlink()
    text = ",\n".join(json.dumps(case, sort_keys=True) for case in cases)
    (out / "cases.json").write_text("[\n" + text + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--random", type=int, default=0, help="number of random graphs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", action="store_true")
    parser.add_argument("--program", help="policy_test, to be run on what was produced")
    options = parser.parse_args()
    if options.jobs:
        run_cases(json.loads((options.out / "jobs.json").read_text()), options.out)
        return 0
    everything = list(settings())
    if options.program:
        import tensorflow as tf
        if not tf.__version__.startswith("2.21."):  # other versions paint differently
            print(f"skipped: this is TensorFlow {tf.__version__}, not 2.21")
            return 0
        with tempfile.TemporaryDirectory() as folder:
            produce(pathlib.Path(folder) / "networks", NETWORKS, everything)
            count = options.random or 40
            produce(pathlib.Path(folder) / "random", [f"random_{options.seed + i}" for i in range(count)],
                    ["plain", "infer_as_deny", "old_names"])
            for part in ("networks", "random"):
                run = subprocess.run([options.program, "--gtest_filter=TfAmpOracle.*"],
                                     env={**os.environ, "HALFSCOPE_TF_AMP_CASES": f"{folder}/{part}"})
                if run.returncode != 0:
                    return 1
        return 0
    if options.random:
        produce(options.out, [f"random_{options.seed + i}" for i in range(options.random)],
                ["plain", "infer_as_deny", "old_names"])
    else:
        produce(options.out, NETWORKS, everything)
    return 0


if __name__ == "__main__":
    sys.exit(main())
