/* A call of cuLaunchKernelEx whose arguments are known: what ctypes would do, without converting them at each call.

   Compiled by `enqueue.py`. Of the limited API only, so that one file serves all versions of Python. */
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

typedef int (*Function)(const void *config, void *kernel, void **parameters, void **extra);

typedef struct {
    PyObject_HEAD
    Function function;
    const void *config;
    void *kernel;
    void **parameters;
    PyObject *owner;
} Enqueue;

static PyObject *enqueue_new(PyTypeObject *type, PyObject *arguments, PyObject *named) {
    unsigned long long function, config, kernel, parameters;
    PyObject *owner;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "Enqueue takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "KKKKO", &function, &config, &kernel, &parameters, &owner)) return NULL;
    if (!function) {
        PyErr_SetString(PyExc_ValueError, "the function has no address");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Enqueue *self = (Enqueue *)allocate(type, 0);
    if (!self) return NULL;
    self->function = (Function)(uintptr_t)function;
    self->config = (const void *)(uintptr_t)config;
    self->kernel = (void *)(uintptr_t)kernel;
    self->parameters = (void **)(uintptr_t)parameters;
    Py_INCREF(owner);
    self->owner = owner;
    return (PyObject *)self;
}

static void enqueue_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((Enqueue *)object)->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *enqueue_call(PyObject *object, PyObject *arguments, PyObject *named) {
    Enqueue *self = (Enqueue *)object;
    int status;
    (void)arguments;
    (void)named;
    Py_BEGIN_ALLOW_THREADS /* the driver waits while the stream's queue is full */
    status = self->function(self->config, self->kernel, self->parameters, NULL);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(status);
}

static PyType_Slot enqueue_slots[] = {
    {Py_tp_doc, "Enqueue(function, config, kernel, parameters, owner): addresses, and what keeps their memory alive.\n\n"
                "Calling it returns the driver's status."},
    {Py_tp_new, enqueue_new},
    {Py_tp_dealloc, enqueue_dealloc},
    {Py_tp_call, enqueue_call},
    {0, NULL},
};

static PyType_Spec enqueue_spec = {"warploom.driver._enqueue.Enqueue", sizeof(Enqueue), 0, Py_TPFLAGS_DEFAULT,
                                   enqueue_slots};

static int fill(PyObject *module) {
    PyObject *type = PyType_FromSpec(&enqueue_spec);
    int status = type ? PyModule_AddObjectRef(module, "Enqueue", type) : -1;
    Py_XDECREF(type);
    return status;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, .m_name = "_enqueue", .m_slots = module_slots};

PyMODINIT_FUNC PyInit__enqueue(void) { return PyModuleDef_Init(&module_definition); }
