-- Three training steps as Nsight Systems exports them: the tables and columns of its schema that are read,
-- among others that are not. PyTorch's allocator takes two segments, cuBLAS a workspace, a stream-ordered pool
-- gives memory and takes it back, the last call finds none left. A helper process has memory of its own.
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT,
    isDiscrete INTEGER, l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, cuDevice INTEGER);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,
    nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_DEV_MEM_EVENT_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL,
    bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,
    correlationId INTEGER, streamId INTEGER, localMemoryPoolAddress INTEGER,
    localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER,
    importedMemoryPoolAddress INTEGER, importedMemoryPoolProcessId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
    returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL,
    unresolved INTEGER, originalIP INTEGER, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth));
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
    domainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, nameId INTEGER NOT NULL);

INSERT INTO StringIds VALUES (1,'cudaMalloc_v3020'), (2,'cudaFree_v3020'), (3,'cudaMallocAsync_v11020'),
    (4,'cudaFreeAsync_v11020'), (5,'cudaHostAlloc_v3020'), (6,'void gemm<float, 128>(float*, float*)'), (7,'gemm'),
    (8,'cublasCreate_v2'), (9,'0x7f00000010'), (10,'/usr/lib/libcublas.so.12'), (11,'forward'),
    (12,'cudaMemcpyAsync_v3020');
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION','2026.1.1.100'), ('EXPORT_SCHEMA_VERSION','3.20.0');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1790000000000000000, NULL, NULL);
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0,'','Hostname',8,'node-7');
INSERT INTO TARGET_INFO_GPU (vmId, id, name, totalMemory) VALUES (0,0,'NVIDIA H100 80GB HBM3',85031714816),
    (0,1,'NVIDIA H100 80GB HBM3',85031714816);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0,'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE','Pageable'),
    (1,'CUDA_MEMOPR_MEMORY_KIND_PINNED','Pinned'), (2,'CUDA_MEMOPR_MEMORY_KIND_DEVICE','Device'),
    (3,'CUDA_MEMOPR_MEMORY_KIND_ARRAY','Array'), (4,'CUDA_MEMOPR_MEMORY_KIND_MANAGED','Managed'),
    (5,'CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC','Device Static'),
    (6,'CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC','Managed Static'), (7,'CUDA_MEMOPR_MEMORY_KIND_UNKNOWN','Unknown');
INSERT INTO ENUM_CUDA_DEV_MEM_EVENT_OPER VALUES (0,'CUDA_DEV_MEM_EVENT_OPR_ALLOCATION','Allocation'),
    (1,'CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION','Deallocation');
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1,'CUDA_MEMCPY_KIND_HTOD','Host-to-Device');

-- A serialized id is the process in bits 24 to 47 and the thread below it: process 4242, thread 4242.
CREATE TEMP TABLE ids AS SELECT 4242 << 24 AS pid, (4242 << 24) + 4242 AS tid, 5151 << 24 AS other;
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS
    SELECT column1, CASE WHEN column2 = 0 THEN pid ELSE other END, 0, 1, column3, 0, column4, column5, column6,
        column7, column8, column9, column10, NULL, NULL, NULL, NULL, NULL FROM ids, (VALUES
    (1000, 0, 0x7f0000000000,    4096, 5, 0, 'lookup_table', NULL, NULL, NULL),
    (2000, 0, 0x7f0000200000, 2097152, 2, 0, NULL, 101, NULL, NULL),
    (3000, 0, 0x7f1000000000, 1048576, 1, 0, NULL, 102, NULL, NULL),
    (3500, 1, 0x7f0000200000, 1000000, 2, 0, NULL, 101, NULL, NULL),
    (5000, 0, 0x7f0000400000, 8388608, 2, 0, NULL, 103, NULL, NULL),
    (6000, 0, 0x7f0001000000, 4194304, 2, 0, NULL, 104, 7, 0x5555),
    (7000, 0, 0x7f0001000000, 4194304, 2, 1, NULL, 105, 7, 0x5555),
    (9000, 0, 0x7f0000200000, 2097152, 2, 1, NULL, 106, NULL, NULL),
    (9500, 0, 0x7f0009000000,     512, 7, 0, NULL, NULL, NULL, NULL));
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT column1, column1 + 50, 0, tid, column2, column3, column4, column5
    FROM ids, (VALUES (1990, 101, 1, 0, NULL), (2990, 102, 5, 0, NULL), (4990, 103, 1, 0, 1), (5990, 104, 3, 0, NULL),
    (6990, 105, 4, 0, NULL), (7500, 110, 12, 0, NULL), (8990, 106, 2, 0, NULL), (9900, 111, 1, 2, NULL));
INSERT INTO CUDA_CALLCHAINS VALUES (1,8,10,0,0,1), (1,9,10,1,0x7f00000010,0);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT column1, column2, 0, 1, 7, column3, pid, 6, 7 FROM ids,
    (VALUES (2500, 2900, 120), (5200, 5900, 121), (8200, 8900, 122));
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT 2000, 2100, 0, 1, 7, 120, other, 6, 7 FROM ids;
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY SELECT 7600, 7700, 0, 1, 14, 110, pid, 1048576, 1 FROM ids;
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET SELECT 7800, 7810, 0, 1, 7, 123, pid, 0, 4096 FROM ids;
INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid)
    SELECT column1, column2, column3, column4, column5, tid FROM ids, (VALUES
    (1500, 4000, 59, 'step 1', NULL), (4500, 6500, 59, 'step 2', NULL), (6600, 9999, 59, 'step 3', NULL),
    (1600, 3900, 59, NULL, 11), (4600, 6400, 59, NULL, 11), (6700, 9800, 59, NULL, 11),
    (1700, 2100, 59, 'aten::addmm, seq = 1', NULL), (1750, 2050, 59, 'aten::empty, seq = 2', NULL),
    (4700, 5100, 59, 'aten::addmm, seq = 3', NULL), (500, NULL, 34, 'a mark', NULL), (0, NULL, 75, 'a domain', NULL));
DROP TABLE ids;
